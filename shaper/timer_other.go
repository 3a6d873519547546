//go:build !linux

package shaper

func newTimer() timer { return newRuntimeTimer() }
