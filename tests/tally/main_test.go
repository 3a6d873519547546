package main

import (
	"strings"
	"testing"
)

// ran is output of `go test -json`: package a fails in part, and is stopped while a test of it hangs, b
// does not build, c has no tests, and d passes.
const ran = `{"Action":"start","Package":"shaper/a"}
{"Action":"output","Package":"shaper/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"shaper/a","Test":"TestGood","Output":"    a_test.go:7: it is good\n"}
{"Action":"attr","Package":"shaper/a","Test":"TestGood","Key":"the_rate","Value":"7/s"}
{"Action":"pass","Package":"shaper/a","Test":"TestGood","Elapsed":0.1}
{"Action":"output","Package":"shaper/a","Test":"TestBad","Output":"    a_test.go:9: it is bad\n"}
{"Action":"fail","Package":"shaper/a","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"shaper/a","Test":"TestSlow/time","Output":"    judge.go:9: not judged: the machine was busy: a timed wake-up came 7ms late: slow\n"}
{"Action":"output","Package":"shaper/a","Test":"TestSlow/time","Output":"--- SKIP: TestSlow/time (0.00s)\n"}
{"Action":"skip","Package":"shaper/a","Test":"TestSlow/time","Elapsed":0}
{"Action":"output","Package":"shaper/a","Test":"TestRoot","Output":"    a_test.go:8: only root can\n"}
{"Action":"skip","Package":"shaper/a","Test":"TestRoot","Elapsed":0}
{"Action":"output","Package":"shaper/a","Test":"TestHangs","Output":"panic: test timed out after 20m0s\n"}
{"Action":"output","Package":"shaper/a","Output":"FAIL\n"}
{"Action":"fail","Package":"shaper/a","Elapsed":1.25}
{"ImportPath":"shaper/b","Action":"build-output","Output":"b.go:1:1: syntax error\n"}
{"ImportPath":"shaper/b","Action":"build-fail"}
{"Action":"skip","Package":"shaper/c","Elapsed":0}
go: something else
{"Action":"pass","Package":"shaper/d","Elapsed":2}
`

const want = `FAILED  a TestBad
    a_test.go:9: it is bad
FAILED  a
FAIL
UNENDED a TestHangs
panic: test timed out after 20m0s
FAILED  b
b.go:1:1: syntax error
go: something else
ok      d                       2.0s

test      figure    value
TestGood  the rate  7/s

skipped:
  a TestRoot: only root can

not judged:
  a TestSlow/time: not judged: the machine was busy: a timed wake-up came 7ms late: slow

FAILED:
  a TestBad
  a
  a TestHangs
  b

2 passed, 4 failed, 1 skipped, 1 not judged, in 0s
`

func TestTally(t *testing.T) {
	var out strings.Builder
	if tally(strings.NewReader(ran), &out) {
		t.Error("tally reports success")
	}
	if out.String() != want {
		t.Errorf("tally prints\n%s\nwant\n%s", out.String(), want)
	}
	if !tally(strings.NewReader(`{"Action":"pass","Package":"shaper/d","Elapsed":2}`), &out) {
		t.Error("tally reports failure, though all tests passed")
	}
	if tally(strings.NewReader(`{"Action":"start","Package":"shaper/e"}`+"\n"+`{"Action":"pass","Package":"shaper/d","Elapsed":2}`), &out) {
		t.Error("tally reports success, though a package has not ended")
	}
	if tally(strings.NewReader(""), &out) {
		t.Error("tally reports success without any test")
	}
}
