package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	peers "shaper/tests/trial"
)

// TestAwake keeps a processor awake: with loops that run only while nobody else wants it, and that end when they are stopped.
func TestAwake(t *testing.T) {
	const idle = "5" // SCHED_IDLE in sched(7)
	stop, err := startNeighbours(awake(shaper), options{})
	defer stop()
	if err != nil {
		t.Fatal(err)
	}
	loops := children(t)
	peers.Await(t, "two loops of idle priority", func() bool {
		n := 0
		for _, pid := range loops {
			if name, policy := schedulingOf(pid); name == "sh" && policy == idle {
				n++
			}
		}
		return n == 2
	})
	stop()
	if after := children(t); len(after) > len(loops)-2 {
		t.Errorf("%v are left of %v", after, loops)
	}
}

// children returns the processes that this one has started and that it has not waited for.
func children(t *testing.T) (all []string) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		of, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%s/children", task.Name()))
		if err != nil {
			t.Skip(err)
		}
		all = append(all, strings.Fields(string(of))...)
	}
	return all
}

// schedulingOf returns the name of a process and its scheduling policy, as proc_pid_stat(5) has them.
func schedulingOf(pid string) (name, policy string) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	_, rest, _ := strings.Cut(string(stat), "(")
	name, rest, _ = strings.Cut(rest, ") ")
	if f := strings.Fields(rest); len(f) > 38 {
		policy = f[38]
	}
	return name, policy
}
