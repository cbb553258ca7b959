//go:build !amd64 || race

package call

// Set stores v. A reader that sees it sees all that the writer wrote before.
func (u *Published) Set(v uint64) { u.Store(v) }
