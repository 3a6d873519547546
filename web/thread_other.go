//go:build !linux

package web

import "time"

// threadTime returns the time: only Linux says for how long a thread has run.
func threadTime() time.Duration { return time.Since(started) }

var started = time.Now()
