package unit

import "testing"

func TestRateLike(t *testing.T) {
	for _, c := range []struct {
		limit string
		now   float64
		want  string
	}{
		{"20mbit", 2_475_000, "19.8mbit"},
		{"20mbit", 0, "0bit"},
		{"64KiB/s", 65_000, "63.5KiB/s"},
		{"2MB/s", 1_999_999, "2.00MB/s"},
		{"64KiB/s", 3, "3.00B/s"},
		{"30 packets/s", 29.97, "30.0 packets/s"},
		{"0.5 packets/s", 0.5, "0.50 packets/s"},
		{"900 connections/s", 899.9, "900 connections/s"},
		{"900 connections/s", 0, "0 connections/s"},
	} {
		limit, err := ParseRate(c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if got := limit.Like(c.now); got != c.want {
			t.Errorf("%v at a limit of %s is %q, want %q", c.now, c.limit, got, c.want)
		}
	}
}
