package simulate

import (
	"os"
	"regexp"
	"testing"
	"time"

	"shaper/policy"
)

// recipe returns the policy that docs/recipes.md shows under a heading.
func recipe(t *testing.T, heading string) *policy.Policy {
	t.Helper()
	text, err := os.ReadFile("../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)\n## " + regexp.QuoteMeta(heading) + "\n.*?```toml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("docs/recipes.md has no policy under %q", heading)
	}
	p, warnings, err := policy.Parse("recipe.toml", block[1])
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return p
}

// The quota of a day is used up at the rate of the class beneath it. What waits then leaves at
// that rate when the next day begins.
func TestRecipeOfAQuota(t *testing.T) {
	const quota, day = 100_000, 24 * time.Hour
	p := recipe(t, "A quota for each day, and a rate")
	_, left := simulated(t, p, loads(t, p, "rate=25 messages/s,count=130000"), Options{For: 25 * time.Hour})
	if len(left) != quota+500 {
		t.Fatalf("%d messages leave, want the quota and what waits for the next day", len(left))
	}
	gap := p.Classes[1].Rate.Below(p.Classes[1].Headroom).Time(1)
	for i := range left[1:] {
		if d := left[i+1] - left[i]; d < gap || d > gap+time.Millisecond && i+1 != quota {
			t.Fatalf("message %d leaves %v after the one before it, want %v", i+1, d, gap)
		}
	}
	if last := left[quota-1]; last > 86*time.Minute {
		t.Errorf("the quota is used up after %v", last)
	}
	if first := left[quota]; first != day {
		t.Errorf("the first message of the next day leaves at %v", first)
	}
}
