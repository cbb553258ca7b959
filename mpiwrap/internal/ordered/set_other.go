//go:build !amd64 || race

package ordered

// Set stores v. A reader that sees it sees all that the writer wrote before.
func (u *Uint64) Set(v uint64) { u.Store(v) }
