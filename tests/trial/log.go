package trial

import (
	"bytes"
	"log/slog"
	"sync"
)

// A Log holds what was logged. All goroutines may write and read it.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// NewLog returns a Log, and a logger that writes into it.
func NewLog() (*Log, *slog.Logger) {
	l := new(Log)
	return l, slog.New(slog.NewTextHandler(l, nil))
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
