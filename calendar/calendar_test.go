package calendar

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t interface{ Fatal(...any) }, name string) Zone {
	z, err := ParseZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

func TestWindowsFollowTheCalendarOfTheirZone(t *testing.T) {
	for _, c := range []struct {
		what       string
		windows    Windows
		now        string
		start, end string
	}{
		{"a day in UTC", Windows{Day, zone(t, "UTC"), 0}, "2026-11-22T15:00:00Z", "2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"the first instant of a day", Windows{Day, zone(t, "UTC"), 0}, "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"before the reset of a day", Windows{Day, zone(t, "UTC"), 9 * 60}, "2026-11-22T08:59:59Z", "2026-11-21T09:00:00Z", "2026-11-22T09:00:00Z"},
		{"a day of 23 hours", Windows{Day, zone(t, "America/Los_Angeles"), 0}, "2026-03-08T20:00:00Z", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"},
		{"a day of 25 hours", Windows{Day, zone(t, "America/Los_Angeles"), 0}, "2026-11-01T20:00:00Z", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"},
		{"a reset in the hour that is skipped", Windows{Day, zone(t, "Europe/Paris"), 2*60 + 30}, "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"the day before it", Windows{Day, zone(t, "Europe/Paris"), 2*60 + 30}, "2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z"},
		{"a reset in the hour that comes twice", Windows{Day, zone(t, "Europe/Paris"), 2*60 + 30}, "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"the day before it", Windows{Day, zone(t, "Europe/Paris"), 2*60 + 30}, "2026-10-25T00:29:59Z", "2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z"},
		{"a week from Monday", Windows{Week, zone(t, "Asia/Kolkata"), 0}, "2026-11-22T15:00:00Z", "2026-11-15T18:30:00Z", "2026-11-22T18:30:00Z"},
		{"a week on Monday", Windows{Week, zone(t, "UTC"), 0}, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"a month", Windows{Month, zone(t, "UTC"), 0}, "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"a month before its reset", Windows{Month, zone(t, "UTC"), 60}, "2026-03-01T00:59:59Z", "2026-02-01T01:00:00Z", "2026-03-01T01:00:00Z"},
		{"the day that Samoa has skipped", Windows{Day, zone(t, "Pacific/Apia"), 0}, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"a midnight that does not exist", Windows{Day, zone(t, "America/Santiago"), 0}, "2026-09-06T05:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"},
		{"a midnight that comes twice", Windows{Day, zone(t, "America/Havana"), 0}, "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"the same, an hour later", Windows{Day, zone(t, "America/Havana"), 0}, "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
	} {
		start, end := c.windows.Around(at(t, c.now))
		if !start.Equal(at(t, c.start)) || !end.Equal(at(t, c.end)) {
			t.Errorf("%s: the window around %s is from %v to %v, want %s to %s", c.what, c.now, start.UTC(), end.UTC(), c.start, c.end)
		}
		if next := c.windows.After(start, 1); !next.Equal(end) {
			t.Errorf("%s: the next window begins at %v, want %v", c.what, next.UTC(), end.UTC())
		}
	}
}

// Windows divide time: each begins where the one before it ends, no earlier window comes again,
// and there are as many days as the calendar has.
func TestWindowsDivideTime(t *testing.T) {
	for _, name := range []string{"America/Los_Angeles", "Europe/Paris", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago", "Pacific/Apia", "America/Havana", "Africa/Casablanca", "UTC"} {
		for _, period := range []Period{Day, Week, Month} {
			for _, reset := range []Clock{0, 90, 150, 23*60 + 59} {
				w := Windows{period, zone(t, name), reset}
				now := time.Date(2010, 1, 1, 12, 0, 0, 0, time.UTC)
				start, end := w.Around(now)
				for n := 0; now.Year() < 2028; n++ {
					if start.After(now) || !end.After(now) {
						t.Fatalf("%v: %v is not from %v to %v", w, now, start, end)
					}
					if again, _ := w.Around(end.Add(-1)); !again.Equal(start) {
						t.Fatalf("%v: the last instant before %v is in a window from %v, want %v", w, end, again, start)
					}
					before := end
					now = end
					if start, end = w.Around(now); !start.Equal(before) {
						t.Fatalf("%v: a window begins at %v, and the one before it has ended at %v", w, start, before)
					}
				}
			}
		}
	}
}

// A clock shows what On says, or its time is skipped.
func TestClockShowsItsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := zone(t, rapid.SampledFrom([]string{"America/Los_Angeles", "Europe/Paris", "Australia/Lord_Howe", "America/Santiago", "UTC"}).Draw(t, "zone"))
		c := Clock(rapid.IntRange(0, int(Midnight)).Draw(t, "clock"))
		day := rapid.IntRange(0, 800).Draw(t, "day")
		loc := z.Location()
		got := c.On(2026, 1, 1+day, loc)
		want := time.Date(2026, 1, 1+day, 0, int(c), 0, 0, time.UTC)
		if wall(got).Equal(want) {
			for earlier := got.Add(-3 * time.Hour); earlier.Before(got); earlier = earlier.Add(time.Minute) {
				if wall(earlier.In(loc)).Equal(want) {
					t.Fatalf("%v on %v is at %v, and clocks show it at %v too", c, want, got, earlier)
				}
			}
			return
		}
		if before := wall(got.Add(-1).In(loc)); !before.Before(want) || !wall(got).After(want) {
			t.Fatalf("%v is at %v: clocks show %v before it and %v after it", want, got, before, wall(got))
		}
	})
}

func TestTextOfZonesAndClocks(t *testing.T) {
	for _, text := range []string{"00:00", "09:05", "23:59", "24:00"} {
		if c, err := ParseClock(text); err != nil || c.String() != text {
			t.Errorf("%q is read as %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "9:00", "24:01", "12:60", "1200", "12:00:00", "-1:00", "1 :00"} {
		if c, err := ParseClock(text); err == nil {
			t.Errorf("%q is read as %v", text, c)
		}
	}
	for _, name := range []string{"", "Local", "Europe/Pari", "/etc/passwd", "../UTC", "CEST+2"} {
		if z, err := ParseZone(name); err == nil {
			t.Errorf("%q is read as %v", name, z)
		}
	}
	if a, b := zone(t, "Europe/Paris"), zone(t, "Europe/Paris"); a != b || a.Location() != b.Location() || a.String() != "Europe/Paris" {
		t.Errorf("%v and %v differ", a, b)
	}
}
