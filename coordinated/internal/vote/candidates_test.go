package vote

import (
	"reflect"
	"testing"
)

func TestCommon(t *testing.T) {
	id := func(b byte) (x [16]byte) { x[0] = b; return x }
	per := [][]Candidate{
		{{5, id(1)}, {4, id(1)}, {2, id(1)}},
		{{5, id(2)}, {4, id(1)}, {3, id(1)}, {2, id(1)}},
	}
	if got, want := Common(per), []Candidate{{4, id(1)}, {2, id(1)}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v: epoch 5 differs in contents", got, want)
	}
}
