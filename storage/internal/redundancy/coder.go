package redundancy

import "errors"

// Coder computes parity over parts of one length: the data of a stripe, and then its rows.
type Coder interface {
	// Encode fills the rows.
	Encode(parts [][]byte) error
	// ReconstructSome computes the missing parts that are required. A missing part is nil.
	ReconstructSome(parts [][]byte, required []bool) error
}

// ErrNoImport marks a program that does not import the package for parity.
var ErrNoImport = errors.New("this program is built without parity " +
	`(add import _ "github.com/holdfast-hpc/holdfast/storage/parity" to the program; the tool holdfast has it)`)

// newCoder makes a coder that uses that many cores, or as many as pay if that is 0; nil without the import.
var newCoder func(data, rows, cores int) (Coder, error)

// Register is called by the init of the package that computes parity.
func Register(f func(data, rows, cores int) (Coder, error)) { newCoder = f }

// Ready returns ErrNoImport in a program that can neither compute parity nor a shard from it.
func Ready() error {
	if newCoder == nil {
		return ErrNoImport
	}
	return nil
}

// coder makes the coder of the stripe's group.
func (s *Stripe) coder(cores int) (Coder, error) {
	if err := Ready(); err != nil {
		return nil, err
	}
	return newCoder(s.K, s.M, cores)
}
