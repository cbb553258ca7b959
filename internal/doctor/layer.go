package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/holdfast-hpc/holdfast/internal/mpirun"
	"github.com/holdfast-hpc/holdfast/internal/preload"
)

// proof loads an MPI as a program does, sends itself a message by the program's own symbol, and prints whether the
// layer has counted it, as hf_init does for a program that uses libholdfast.
const proof = `
import ctypes, sys
for name in sys.argv[1:]:
    try:
        mpi = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        break
    except OSError as e:
        why = e
else:
    sys.exit("cannot load %s: %s" % (sys.argv[1], why))
class Layer(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("seen", ctypes.CFUNCTYPE(ctypes.c_uint64))]
own = ctypes.CDLL(None)
own.hf_message_layer.restype = ctypes.POINTER(Layer)
layer = own.hf_message_layer().contents
own.MPI_Init(None, None)
if hasattr(mpi, "ompi_mpi_comm_world"):
    world, byte = (ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + n)))
                   for n in ("comm_self", "byte"))
else:
    world, byte = ctypes.c_int(0x44000001), ctypes.c_int(0x4c00010d)
before, a, b = layer.seen(), ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
status = ctypes.create_string_buffer(64)
own.MPI_Sendrecv(a, 1, byte, 0, 1, b, 1, byte, 0, 1, world, status)
after = layer.seen()
own.MPI_Finalize()
print("proof:", name, "sees" if after == before + 2 and b.raw == b"x" else "misses")
`

// libraries are the names by which programs load the MPI of a launcher.
var libraries = map[string][]string{mpirun.OpenMPI.Name: {"libmpi.so.40", "libmpi.so"},
	mpirun.MPICH.Name: {"libmpich.so.12", "libmpi.so.12", "libmpich.so"}}

// lookLayer looks for libholdfast-mpi, and has it prove for each MPI that it sees a program's calls.
func (r *report) lookLayer(ctx context.Context, self string) {
	const check = "libholdfast-mpi"
	path := preload.Beside(self, preload.Layer)
	if path == "" {
		path, _ = preload.Find(ctx, preload.Layer)
	}
	if path == "" {
		r.add(languages, check, Note, "not found: programs promise that no message is in flight at their points, and "+
			"holdfast run --watch cannot look at them", "make install, then module load holdfast")
		return
	}
	r.add(languages, check, OK, path+"; holdfast run puts it before the MPI of programs", "")
	if _, err := exec.LookPath("python3"); err != nil {
		r.add(languages, check+": proof", Skipped, "no python3 in PATH to call MPI", "")
		return
	}
	for _, l := range mpirun.Launchers() {
		picked, err := mpirun.Pick(l.Name)
		if err != nil {
			continue
		}
		line := append([]string{"env", preload.Var + "=" + path, "python3", "-c", proof}, libraries[l.Name]...)
		out, err := picked.Job(1, 20*time.Second, line...).Output(ctx)
		r.judgeLayer(l.Title, out, err)
	}
}

func (r *report) judgeLayer(title, out string, err error) {
	const check = "libholdfast-mpi: "
	_, answer, found := strings.Cut(out, "proof: ")
	words := strings.Fields(answer)
	switch {
	case err != nil || !found || len(words) < 2:
		if err == nil {
			err = fmt.Errorf("no answer: %s", firstLine(out))
		}
		r.add(languages, check+title, Note, "not proved: "+lastLine(err.Error()), "start a program of this MPI by "+
			"'holdfast run --watch', which says whether its calls are seen")
	case words[1] == "sees":
		r.add(languages, check+title, OK, "it sees the messages of a program that has loaded "+words[0], "")
	default:
		r.add(languages, check+title, Warning, "it does not see the messages of a program that has loaded "+words[0],
			"link MPI as a shared library, and load it without RTLD_DEEPBIND; programs run with --messages=false")
	}
}
