package entry

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
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
		if got := u.Check(c.user, c.password, now); got != c.want {
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
	if !u.Check("bob", "secret", now) {
		t.Fatal("bob cannot log in")
	}
	for i := range maxTries {
		if u.Check("eve", fmt.Sprint(i), now) {
			t.Error("eve can log in")
		}
	}
	if u.Check("ann", "secret", now) {
		t.Error("a password is compared after too many tries")
	}
	if !u.Check("bob", "secret", now) {
		t.Error("bob cannot log in again")
	}
	if !u.Check("ann", "secret", now.Add(time.Second)) {
		t.Error("ann cannot log in a second later")
	}
}

// A file with a mistake is refused, and the error repeats neither a name nor a hash.
func TestBadUsers(t *testing.T) {
	b, a := cheap(t, "secret")
	for text, want := range map[string]string{
		"": "no user", "# bob:" + b: "no user", "bob\n": "line 1", "bob:secret\n": "line 1", "\nbob:" + b + "x\n": "line 2", ":" + b: "line 1",
		"bob:" + b + "\nbob:" + a: "line 2", "bob:" + strings.Replace(a, "m=64", "m=1048576", 1): "costs too much", "bob:" + strings.Replace(a, "t=1,", "t=0,", 1): "line 1",
		"bob:" + strings.Replace(b, "$04$", "$31$", 1): "costs too much", "bob:" + strings.Replace(a, "v=19", "v=16", 1): "line 1", "bob:" + a[:len(a)-30]: "line 1",
		"bob:$argon2id$v=19$m=64,t=1,p=1$$": "line 1",
	} {
		_, err := ParseUsers(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "bob") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
