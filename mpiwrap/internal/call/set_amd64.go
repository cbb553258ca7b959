//go:build amd64 && !race

package call

import "unsafe"

// Set stores v. A reader that sees it sees all that the writer wrote before.
func (u *Published) Set(v uint64) { store((*uint64)(unsafe.Pointer(&u.Uint64)), v) }

// store is an ordinary store that the compiler leaves where it is.
//
//go:noescape
func store(p *uint64, v uint64)
