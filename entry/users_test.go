package entry

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// cheap returns hashes of a password that cost little.
func cheap(t testing.TB, password string) (byBcrypt, byArgon2 string) {
	t.Helper()
	b, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	salt, code := []byte("12345678"), base64.RawStdEncoding.EncodeToString
	sum := argon2.IDKey([]byte(password), salt, 1, 64, 1, 32)
	return string(b), fmt.Sprintf("$argon2id$v=19$m=64,t=1,p=1$%s$%s", code(salt), code(sum))
}

// check is Check at a time, which does not wait for ever.
func check(u *Users, user, password string, now time.Time) bool {
	return u.Check(context.Background(), user, password, func() time.Time { return now })
}

// A user logs in with the right password only, whatever the hash.
func TestUsers(t *testing.T) {
	b, a := cheap(t, "secret")
	u, err := ParseUsers("# users\n\nbob:" + b + "\nann:" + a + "\r\n")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	for _, c := range []struct {
		user, password string
		want           bool
	}{
		{"bob", "secret", true}, {"ann", "secret", true}, {"bob", "Secret", false}, {"ann", "secret ", false}, {"bob", "", false}, {"", "secret", false},
		{"eve", "secret", false}, {"bob", "secret", true}, {"ann", "secret", true},
	} {
		now = now.Add(time.Second)
		if got := check(u, c.user, c.password, now); got != c.want {
			t.Errorf("%s with %q: %v", c.user, c.password, got)
		}
	}
}

// After some wrong passwords in a second, no more are compared. Who has logged in before still may.
func TestGuessing(t *testing.T) {
	b, _ := cheap(t, "secret")
	u, err := ParseUsers("bob:" + b + "\nann:" + b + "\n")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	if !check(u, "bob", "secret", now) {
		t.Fatal("bob cannot log in")
	}
	for i := range maxTries {
		if check(u, "eve", fmt.Sprint(i), now) {
			t.Error("eve can log in")
		}
	}
	if check(u, "ann", "secret", now) {
		t.Error("a password is compared after too many tries")
	}
	if !check(u, "bob", "secret", now) {
		t.Error("bob cannot log in again")
	}
	if !check(u, "ann", "secret", now.Add(time.Second)) {
		t.Error("ann cannot log in a second later")
	}
}

// Who has logged in by an earlier file with the same hash is known, and the tries by both count together.
func TestFollow(t *testing.T) {
	b, a := cheap(t, "secret")
	earlier, err := ParseUsers("bob:" + b + "\nann:" + b + "\n")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	if !check(earlier, "bob", "secret", now) || !check(earlier, "ann", "secret", now) {
		t.Fatal("they cannot log in")
	}
	u, err := ParseUsers("bob:" + b + "\nann:" + a + "\n")
	if err != nil {
		t.Fatal(err)
	}
	u.Follow(nil)
	u.Follow(earlier)
	for i := range maxTries {
		check(earlier, "eve", fmt.Sprint(i), now)
	}
	if !check(u, "bob", "secret", now) {
		t.Error("bob cannot log in again")
	}
	if check(u, "ann", "secret", now) {
		t.Error("ann's other hash is compared after too many tries")
	}
	if check(u, "eve", "", now.Add(time.Second)) || !check(u, "ann", "secret", now.Add(time.Second)) {
		t.Error("the file does not decide")
	}
}

// blocking is the hash of all passwords, and compares them when it is told to.
type blocking chan bool

func (b blocking) matches(string) bool { return <-b }

// While maxBusy passwords are being compared, others wait, as long as they can. They are not compared if
// there were too many wrong ones meanwhile.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := cheap(t, "secret")
		u, err := ParseUsers("bob:" + b)
		if err != nil {
			t.Fatal(err)
		}
		compare := make(blocking)
		u.hashes["bob"] = compare
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan bool, 100)
		begin := func(ctx context.Context) {
			go func() { results <- u.Check(ctx, "bob", "x", time.Now) }()
			synctest.Wait()
		}
		ended := func(want bool, n int) {
			t.Helper()
			synctest.Wait()
			if len(results) != n {
				t.Fatalf("%d have ended, want %d", len(results), n)
			}
			for range n {
				if <-results != want {
					t.Errorf("one is %v", !want)
				}
			}
		}
		for range maxBusy {
			begin(t.Context())
		}
		begin(t.Context())
		begin(ctx)
		ended(true, 0)
		cancel()
		ended(false, 1)
		for range maxBusy {
			compare <- true
		}
		ended(true, maxBusy+1) // the last one has the password of the others
		u.logins.known = map[string]login{}
		for range maxTries + 3 {
			begin(t.Context())
		}
		for range maxTries {
			compare <- false
		}
		synctest.Wait()
		for len(results) < maxTries+3 { // those that were being compared already
			compare <- false
			synctest.Wait()
		}
		ended(false, maxTries+3)
	})
}

// A file with a mistake is refused, and the error repeats neither a name nor a hash.
func TestBadUsers(t *testing.T) {
	b, a := cheap(t, "secret")
	for text, want := range map[string]string{
		"": "no user", "# bob:" + b: "no user", "bob\n": "line 1", "bob:secret\n": "line 1", "\nbob:" + b + "x\n": "line 2", ":" + b: "line 1",
		"bob:" + b + "\nbob:" + a: "line 2", "bob:" + strings.Replace(a, "m=64", "m=1048576", 1): "costs too much", "bob:" + strings.Replace(a, "m=64", "m=4294967296", 1): "costs too much",
		"bob:" + strings.Replace(a, "p=1", "p=256", 1): "costs too much", "bob:" + strings.Replace(a, "t=1", "t=99999999999", 1): "costs too much",
		"bob:" + strings.Replace(a, "t=1,", "t=0,", 1): "line 1",
		"bob:" + strings.Replace(b, "$04$", "$31$", 1): "costs too much", "bob:" + strings.Replace(a, "v=19", "v=16", 1): "line 1", "bob:" + a[:len(a)-30]: "line 1",
		"bob:$argon2id$v=19$m=64,t=1,p=1$$": "line 1",
	} {
		_, err := ParseUsers(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "bob") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
