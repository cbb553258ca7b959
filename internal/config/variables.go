package config

// Variables of Holdfast that are no keys, and that its packages ask for by these names.
const (
	FileVar          = "HOLDFAST_CONFIG"
	SupervisorVar    = "HOLDFAST_SUPERVISOR"
	BinVar           = "HOLDFAST_BIN"
	NodeKeyVar       = "HOLDFAST_NODE_KEY"
	PreloadVar       = "HOLDFAST_PRELOAD"
	CUDAPauseVar     = "HOLDFAST_CUDA_PAUSE"
	WatchVar         = "HOLDFAST_WATCH"
	HandsVar         = "HOLDFAST_HANDS"
	OpenCLLogVar     = "HOLDFAST_OPENCL_LOG"
	OpenCLVendorsVar = "HOLDFAST_OPENCL_VENDORS"
)

// A Variable is one of the environment that is no key.
type Variable struct{ Name, Help string }

// Variables are all of them.
var Variables = []Variable{
	{FileVar, "configuration file, instead of holdfast.yaml in the working directory"},
	{BinVar, "command holdfast that programs in C, C++, Fortran and Python start; by default the one installed with " +
		"their library, else the one in PATH"},
	{"HOLDFAST_LIBRARY", "libholdfast, for the package of Python"},
	{NodeKeyVar, "name of the job for its daemons; by default the launcher's. Two jobs to which the launcher gives " +
		"no different names need two"},
	{"HOLDFAST_ROOT", "directory of the installation; the module file sets it"},
	{"HOLDFAST_BUILD_CACHE", "directory for kernels compiled by NVRTC, or off; by default ~/.cache/holdfast"},
	{OpenCLLogVar, "1: the command that serves an OpenCL program writes failed calls and reasons to standard error"},
	{OpenCLVendorsVar, "OCL_ICD_VENDORS of that command, for a device without remote="},
	{"HOLDFAST_MPI_CUT", "tests libholdfast-mpi: N drains before every Nth MPI call, rN before one in N at random"},
	{"HOLDFAST_CUDA_DRIVER", "libcuda.so.1 for libholdfast-cuda; by default the first in LD_LIBRARY_PATH or in the " +
		"usual directories of distributions, containers and WSL"},
	{CUDAPauseVar, "on: the program can be paused, and its launches and copies pass the gate; holdfast run --cuda " +
		"sets it"},
	{"HOLDFAST_CUDA_ARENA", "on: libholdfast-cuda maps plain device memory at fixed addresses; off: it only notes " +
		"the driver's; by default as HOLDFAST_CUDA_PAUSE"},
	{"HOLDFAST_CUDA_IPC", "on, the default: other processes can open memory of the arena (cudaIpcGetMemHandle), as " +
		"CUDA-aware MPI and torch.multiprocessing do; off: such calls fail with CUDA_ERROR_NOT_SUPPORTED, and " +
		"programs with another way can be paused"},
	{"HOLDFAST_CUDA_CHECK", "number of roll backs of device memory, which test libholdfast-cuda; 0: only the gate, " +
		"to measure its cost"},
	{"HOLDFAST_CUDA_SEED", "seed of the moments of the roll backs; by default 1"},
	{"HOLDFAST_CUDA_CALLS", "the moments are among this number of first launches and copies, by default 1000; short " +
		"programs meet some"},
	{"HOLDFAST_CUDA_WAIT", "seconds that a roll back waits for the device and for other threads' calls; by default 60"},
	{"HOLDFAST_CUDA_LIST", "file for the ledger of device memory at the end of a program of one process: order, " +
		"kind, address, bytes, context, file and offset of the caller"},
	{PreloadVar, "libraries for the ranks of srun; holdfast run sets it"},
	{WatchVar, "holdfast run --watch sets it: its address for ranks"},
	{HandsVar, "holdfast run --cuda sets it: its address for node daemons"},
	{SupervisorVar, "holdfast run sets it: its address for the job"},
}
