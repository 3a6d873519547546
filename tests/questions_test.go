package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shaper/tests/trial"
)

// questionsPolicy has a class in which 49 of 50 items will wait for hours, one whose provider throttles it, and one
// in which the items have waited longest. That is the last one, so that it is on top only if it is sorted there.
const questionsPolicy = `
[class.bulk]
rate = "1 messages/h"
[class.charges]
rate = "10 messages/s"
on_throttle = { max = "1h" }
[class.otp]
rate = "2 messages/s"
[listener.otp]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = %[1]q
class = "otp"
[listener.bulk]
listen = "127.0.0.1:0"
protocol = "lines"
upstream = %[1]q
class = "bulk"
[listener.charges]
listen = "127.0.0.1:0"
protocol = "http"
upstream = %[2]q
class = "charges"
`

// answersToQuestions are what answers the questions of docs/operations.md with that policy, in their order.
var answersToQuestions = []struct{ question, answer string }{
	{"what waits longest?", `\ACLASS .*\notp `}, // on top
	{"why does `otp` wait?", `\Aclass otp: waiting items: \d+; the next leaves at .*\n *class otp: the limit of 3 messages/s, until \d{4}-`},
	{"when will `bulk` be empty?", `(?m)^drain +4[89]h\d+m`}, // 49 messages
	{"who changed the rate?", `set by uid=\d+ pid=\d+.*\n.*class otp: rate 2 messages/s -> 3 messages/s`},
	{"is the provider throttling us?", `\ACLASS .* THROTTLED .*\ncharges .* 1, pauses \d`},
}

// Each command by which docs/operations.md answers a question answers it: in the table, and in the example
// beneath it.
func TestQuestionsOfTheDashboard(t *testing.T) {
	t.Parallel()
	p := startQuestions(t)
	table, example := questionsOf(t)
	if len(table) != len(answersToQuestions) || len(example) != len(answersToQuestions) {
		t.Fatalf("docs/operations.md has %d questions and %d commands that answer them, want %d", len(table), len(example), len(answersToQuestions))
	}
	for i, want := range answersToQuestions {
		question, command := table[i][0], table[i][1]
		if question != want.question || !strings.HasPrefix(example[i], command) {
			t.Errorf("question %d is %q, by %q, and the example has %q; want %q", i+1, question, command, example[i], want.question)
		}
		for _, literally := range []string{command, example[i]} {
			got := p.sh(literally)
			if !regexp.MustCompile(want.answer).MatchString(got) {
				t.Errorf("%s %s prints\n%swhich does not match %s", question, literally, got, want.answer)
			}
		}
	}
}

// startQuestions starts the daemon, and sends traffic until each question has an answer.
func startQuestions(t *testing.T) *program {
	t.Helper()
	upstream := serve(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	_, provider := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	p := start(t, plain(), fmt.Sprintf(questionsPolicy, upstream, provider))
	p.offer("otp", 900)
	trial.Await(t, "five messages of otp have left, the last one after two seconds", func() bool { return p.class("otp").Sent["upstream"].Messages >= 5 })
	p.offer("bulk", 50)
	trial.Await(t, "49 messages of bulk wait", func() bool { return p.class("bulk").Backlog == 49 })
	if got := askAll(t, p.addr("charges"), 1); got[http.StatusTooManyRequests] != 1 {
		t.Fatalf("the provider of charges answers %v", got)
	}
	p.must("set", "otp", "rate=3 messages/s")
	return p
}

// offer sends n lines to a listener, on a connection that stays open.
func (p *program) offer(listener string, n int) {
	p.t.Helper()
	if _, err := io.WriteString(dial(p.t, "", p.addr(listener)), strings.Repeat("hello\n", n)); err != nil {
		p.t.Fatal(err)
	}
}

// sh runs a command as somebody types it beside the policy, and returns what it prints.
func (p *program) sh(command string) string {
	p.t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = filepath.Dir(p.config)
	cmd.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"), "COLUMNS=200")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("%s: %v", command, err)
	}
	return string(out)
}

// questionsOf returns the rows of the table of questions in docs/operations.md, each a question and the first
// command that answers it in a terminal, and the commands of the example beneath it.
func questionsOf(t *testing.T) (table [][2]string, example []string) {
	t.Helper()
	_, text, _ := strings.Cut(textOf(t, "../docs/operations.md"), "\n| question | in the browser | in a terminal |\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^\\| ([^|]+\\?) \\|[^|]+\\| `(shaper [^`]+)`").FindAllStringSubmatch(text, -1) {
		table = append(table, [2]string{m[1], m[2]})
	}
	for _, m := range regexp.MustCompile(`(?m)^    \$ (shaper .+)$`).FindAllStringSubmatch(text, -1) {
		example = append(example, m[1])
	}
	return table, example
}
