package cuda

import (
	"os"
	"reflect"
	"testing"
)

// TestRealModules looks into what the compilers of CUDA 13.0 made for sm_90 of two
// kernels, tick with variables and heap that allocates.
func TestRealModules(t *testing.T) {
	for _, file := range []string{"testdata/vars.cubin", "testdata/vars.ptx"} {
		image, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := inside{variables: []string{"kept", "others", "ticks"}, params: map[string][]int{"heap": {8},
			"tick": {8}}, heap: true}
		if in := look(image); !reflect.DeepEqual(in, want) {
			t.Errorf("%s: got %+v, want %+v", file, in, want)
		}
	}
}
