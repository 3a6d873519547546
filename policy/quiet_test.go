package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"shaper/calendar"
)

func quieted(t *testing.T, class string) Class {
	t.Helper()
	p, warnings, err := Load("testdata/good/quiet.toml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	c, _ := p.Class(class)
	return c
}

// A recipient has the quiet hours of all sections in which it is, also those of the class above. A
// time is known before it begins, and with its end.
func TestQuietHours(t *testing.T) {
	c := quieted(t, "promotions")
	for _, tt := range []struct{ recipient, at, from, until string }{
		{"9198", "2026-11-23T15:29:59Z", "2026-11-23T15:30:00Z", "2026-11-24T03:30:00Z"}, // 20:59:59 in India
		{"9198", "2026-11-23T15:30:00Z", "", "2026-11-24T03:30:00Z"},
		{"009101", "2026-11-24T03:29:59Z", "", "2026-11-24T03:30:00Z"},
		{"9198", "2026-11-24T03:30:00Z", "2026-11-24T15:30:00Z", "2026-11-25T03:30:00Z"},
		{"9140", "2026-11-23T13:29:59Z", "2026-11-23T13:30:00Z", "2026-11-24T03:30:00Z"}, // two sections, one behind the other
		{"9140", "2026-11-23T14:00:00Z", "", "2026-11-24T03:30:00Z"},
		{"336", "2026-11-23T12:00:00Z", "2026-11-28T23:00:00Z", "2026-11-29T23:00:00Z"}, // on Monday, to Sunday
	} {
		g := c.Quieted.Of([]byte(tt.recipient))
		if g < 0 {
			t.Fatalf("%s has no quiet hours", tt.recipient)
		}
		now, until := c.Scheduled(moment(t, tt.at))
		closed := now.Quieted[g].Closed
		if !closed.From.Equal(moment(t, tt.from)) || !closed.Until.Equal(moment(t, tt.until)) {
			t.Errorf("%s at %s: quiet from %v until %v, want %s and %s", tt.recipient, tt.at, closed.From, closed.Until, tt.from, tt.until)
		}
		if until.IsZero() || !until.After(moment(t, tt.at)) {
			t.Errorf("%s at %s: the class changes at %v", tt.recipient, tt.at, until)
		}
	}
	for _, none := range []string{"", "9", "0091", "4491", "+91"} {
		if g := c.Quieted.Of([]byte(none)); g >= 0 {
			t.Errorf("%q is in group %d", none, g)
		}
	}
	if account := quieted(t, "account"); account.Quieted.Of([]byte("336")) >= 0 || account.Quieted.Of([]byte("91")) < 0 {
		t.Error("the account has the quiet hours of the class beneath it, or none")
	}
}

// Whatever the sections are, a recipient's group is quiet when one of the sections that match it
// holds, and until each change nothing changes.
func TestQuietHoursAreWhatTheSectionsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sections []Quiet
		for range rapid.IntRange(1, 5).Draw(t, "sections") {
			z, _ := calendar.ParseZone(rapid.SampledFrom([]string{"UTC", "Europe/Paris", "Asia/Kolkata"}).Draw(t, "zone"))
			q := Quiet{Hours: Hours{Zone: z, From: calendar.Clock(rapid.IntRange(0, 23).Draw(t, "from") * 60), To: calendar.Clock(rapid.IntRange(0, 24).Draw(t, "to") * 60)}}
			q.Recipient = rapid.SliceOfNDistinct(rapid.SampledFrom([]Pattern{"1*", "12*", "12", "123*", "2*", "22"}), 0, 3, rapid.ID).Draw(t, "recipients")
			if q.From != q.To {
				sections = append(sections, q)
			}
		}
		c := Class{Quieted: newQuietGroups(sections)}
		to := []byte(rapid.SampledFrom([]string{"", "1", "12", "123", "1234", "2", "22", "3"}).Draw(t, "to whom"))
		isQuiet := func(at time.Time) bool {
			for i := range sections {
				if (len(sections[i].Recipient) == 0 || anyMatch(sections[i].Recipient, to, false)) && sections[i].holds(at) {
					return true
				}
			}
			return false
		}
		at := time.Date(2026, 10, 20+rapid.IntRange(0, 10).Draw(t, "day"), rapid.IntRange(0, 23).Draw(t, "hour"), 30, 0, 0, time.UTC)
		now, _ := c.Scheduled(at)
		closed := Span{}
		if g := c.Quieted.Of(to); g >= 0 {
			closed = now.Quieted[g].Closed
		}
		for h := range 48 {
			then := at.Add(time.Duration(h) * time.Hour)
			if then.After(closed.Until) && !closed.Until.IsZero() || closed.Until.Equal(then) {
				break
			}
			inside := !then.Before(closed.From) && then.Before(closed.Until)
			if inside != isQuiet(then) {
				t.Fatalf("to %q at %v: quiet is %v, want %v (%v)", to, then, inside, isQuiet(then), closed)
			}
		}
	})
}

func TestQuietIsPrinted(t *testing.T) {
	c := quieted(t, "promotions")
	if got, want := list(c.Quiet), "to 33* sun from 00:00 to 24:00 in Europe/Paris, to 9140* from 19:00 to 22:00 in Asia/Kolkata"; got != want {
		t.Errorf("it is printed as %q, want %q", got, want)
	}
	all := Quiet{Hours: c.Quiet[0].Hours}
	if got, want := all.String(), "to all sun from 00:00 to 24:00 in Europe/Paris"; got != want {
		t.Errorf("it is printed as %q, want %q", got, want)
	}
}
