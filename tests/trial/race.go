//go:build race

package trial

// Raced reports whether the race detector watches the tests. It allocates, and makes them slow.
const Raced = true
