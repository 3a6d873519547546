package entry

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// Users are those who may log in, with the hashes of their passwords. They never change, and any
// number of goroutines may use them, once Follow was called.
type Users struct {
	hashes map[string]hash
	nobody hash // what an unknown user's password is compared with, so that it takes as long
	logins *logins
}

// logins are those of the past, and those under way.
type logins struct {
	key    []byte        // of the MACs; random
	places chan struct{} // has one for each comparison under way

	// mu guards the fields below.
	mu     sync.Mutex
	known  map[string]login
	window time.Time // when the present second of tries began
	tries  int       // wrong passwords in it
}

// A login is one of a user that was right.
type login struct {
	hash hash   // of the password then
	sum  []byte // a MAC of the password
}

// A hash is that of a password. Two that are equal are the same in both files.
type hash interface{ matches(password string) bool }

// Bounds of what guessing costs us: a comparison takes some 50 ms and up to 256 MiB.
const (
	maxTries  = 5         // wrong passwords in a second, over all users
	maxBusy   = 2         // comparisons at the same time
	maxMemory = 256 << 10 // KiB of argon2id
	maxPasses = 16        // of argon2id
	maxCost   = 14        // of bcrypt

	bcryptSize = 60 // of a hash, in bytes
)

var (
	errHash    = errors.New(`the hash is neither argon2id ("$argon2id$v=19$m=...") nor bcrypt ("$2b$...")`)
	errHigh    = fmt.Errorf("the hash costs too much: argon2id takes at most m=%d, t=%d and p=%d, bcrypt at most %d", maxMemory, maxPasses, math.MaxUint8, maxCost)
	errNoUsers = errors.New("there is no user in it")
)

// ParseUsers reads a file of lines NAME:HASH. Empty lines and those that begin with # are
// skipped. No error repeats a name or a hash.
func ParseUsers(text string) (*Users, error) {
	u := &Users{hashes: map[string]hash{}, logins: &logins{key: make([]byte, 32), places: make(chan struct{}, maxBusy), known: map[string]login{}}}
	rand.Read(u.logins.key)
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, coded, found := strings.Cut(line, ":")
		if !found || name == "" || len(name) > 255 {
			return nil, fmt.Errorf("line %d: it is not NAME:HASH", number)
		}
		if u.hashes[name] != nil {
			return nil, fmt.Errorf("line %d: the name stands twice", number)
		}
		h, err := parseHash(coded)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		u.hashes[name], u.nobody = h, h
	}
	if len(u.hashes) == 0 {
		return nil, errNoUsers
	}
	return u, nil
}

// Keeps reports whether a user who has logged in by an earlier file still may: the name is there, with
// the same hash.
func (u *Users) Keeps(user string, earlier *Users) bool {
	h, known := u.hashes[user]
	return known && earlier != nil && earlier.hashes[user] == h
}

// Follow lets those who have logged in by an earlier file stay known, if they have the same hash, and lets
// both files have the same bounds. Call it before others use u, or with one that follows u. earlier may be nil.
func (u *Users) Follow(earlier *Users) {
	if earlier != nil && u.logins != earlier.logins { // if they are the same, others may use u
		u.logins = earlier.logins
	}
}

// Check reports whether a user has this password. It takes some 50 ms, but less for the password
// that was right before. While maxBusy are being compared, it waits until ctx ends. If maxTries were wrong in
// this second, it returns false at once. Call it in a goroutine of its own.
func (u *Users) Check(ctx context.Context, user, password string, now func() time.Time) bool {
	l := u.logins
	mac := hmac.New(sha256.New, l.key)
	mac.Write([]byte(password))
	one := login{u.hashes[user], mac.Sum(nil)}
	if right, decided := l.decide(user, one, now()); decided {
		return right
	}
	select {
	case l.places <- struct{}{}:
		defer func() { <-l.places }()
	case <-ctx.Done():
		return false
	}
	if right, decided := l.decide(user, one, now()); decided { // others may have guessed meanwhile
		return right
	}
	right := cmp.Or(one.hash, u.nobody).matches(password) && one.hash != nil
	l.note(user, one, right)
	return right
}

// decide decides what can be decided without a comparison.
func (l *logins) decide(user string, one login, now time.Time) (right, decided bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[user]; ok && known.hash == one.hash && subtle.ConstantTimeCompare(known.sum, one.sum) == 1 {
		return true, true
	}
	if now.Sub(l.window) >= time.Second {
		l.window, l.tries = now, 0
	}
	return false, l.tries >= maxTries
}

// note notes the result of a comparison.
func (l *logins) note(user string, one login, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if right {
		l.known[user] = one
	} else {
		l.tries++
	}
}

// parseHash reads a hash of argon2id (RFC 9106, in the form of PHC) or of bcrypt.
func parseHash(s string) (hash, error) {
	if strings.HasPrefix(s, "$argon2id$") {
		return parseArgon2(s)
	}
	cost, err := bcrypt.Cost([]byte(s))
	if err != nil || len(s) != bcryptSize {
		return nil, errHash
	}
	if cost > maxCost {
		return nil, errHigh
	}
	return bcryptHash(s), nil
}

type bcryptHash string

func (h bcryptHash) matches(password string) bool {
	return bcrypt.CompareHashAndPassword([]byte(h), []byte(password)) == nil
}

// argon2Hash is a hash of argon2id.
type argon2Hash struct {
	memory, passes uint32
	threads        uint8
	salt, sum      string
}

func parseArgon2(s string) (hash, error) {
	fields := strings.Split(s, "$")
	var memory, passes, threads uint64
	if len(fields) != 6 || fields[2] != "v=19" {
		return nil, errHash
	}
	if n, err := fmt.Sscanf(fields[3]+"\n", "m=%d,t=%d,p=%d\n", &memory, &passes, &threads); n != 3 || err != nil || memory == 0 || passes == 0 || threads == 0 {
		return nil, errHash
	}
	salt, errSalt := base64.RawStdEncoding.DecodeString(fields[4])
	sum, errSum := base64.RawStdEncoding.DecodeString(fields[5])
	switch {
	case errSalt != nil || errSum != nil || len(salt) < 8 || len(sum) < 16 || len(sum) > 64:
		return nil, errHash
	case memory > maxMemory || passes > maxPasses || threads > math.MaxUint8:
		return nil, errHigh
	}
	return argon2Hash{uint32(memory), uint32(passes), uint8(threads), string(salt), string(sum)}, nil
}

func (h argon2Hash) matches(password string) bool {
	sum := argon2.IDKey([]byte(password), []byte(h.salt), h.passes, h.memory, h.threads, uint32(len(h.sum)))
	return subtle.ConstantTimeCompare(sum, []byte(h.sum)) == 1
}
