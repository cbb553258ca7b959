package config

import "slices"

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
	{FileVar, "the configuration file, instead of holdfast.yaml in the working directory"},
	{BinVar, "the command holdfast that programs in C, C++, Fortran and Python start; by default the one " +
		"that was installed with their library, else the one in PATH"},
	{"HOLDFAST_LIBRARY", "libholdfast, for the package of Python"},
	{NodeKeyVar, "the name of the job for its daemons; by default the launcher's name of the job. Two jobs " +
		"without different names of the launcher need two"},
	{"HOLDFAST_ROOT", "directory of the installation, for users; the module file sets it"},
	{"HOLDFAST_BUILD_CACHE", "directory for kernels that NVRTC has compiled, off for none; by default " +
		"~/.cache/holdfast"},
	{OpenCLLogVar, "1: the command that serves an OpenCL program reports failed calls, with the reason, on " +
		"standard error"},
	{OpenCLVendorsVar, "OCL_ICD_VENDORS of that command, for a device without remote="},
	{"HOLDFAST_MPI_CUT", "tests libholdfast-mpi: N drains before every Nth MPI call, rN before one in N at random"},
	{"HOLDFAST_CUDA_DRIVER", "libcuda.so.1 of CUDA's driver, for libholdfast-cuda; by default the first in " +
		"LD_LIBRARY_PATH or in the usual directories of distributions, containers and WSL"},
	{CUDAPauseVar, "on: the program can be paused, and its launches and copies pass the gate; holdfast run --cuda " +
		"sets it"},
	{"HOLDFAST_CUDA_ARENA", "on: libholdfast-cuda maps plain device memory itself, at fixed addresses; off: it only " +
		"notes the driver's; by default as HOLDFAST_CUDA_PAUSE"},
	{"HOLDFAST_CUDA_IPC", "on, the default: other processes can open memory of the arena (cudaIpcGetMemHandle), as " +
		"CUDA-aware MPI and torch.multiprocessing do; off: such calls fail with CUDA_ERROR_NOT_SUPPORTED, and " +
		"programs that have another way can be paused"},
	{"HOLDFAST_CUDA_CHECK", "number of roll backs of device memory in place, which test libholdfast-cuda; 0: none, " +
		"but launches and copies pass the gate, to measure its cost"},
	{"HOLDFAST_CUDA_SEED", "chooses the moments of the roll backs, the same ones for one seed; by default 1"},
	{"HOLDFAST_CUDA_CALLS", "the moments are among this number of first launches and copies, by default 1000; each " +
		"range is half of the next, so that short programs meet some"},
	{"HOLDFAST_CUDA_WAIT", "seconds that a roll back waits for the device and for calls of other threads; by " +
		"default 60"},
	{"HOLDFAST_CUDA_LIST", "file for the ledger of device memory at the end of the program, which is one process: " +
		"order, kind, address, bytes, context, file and offset of the caller"},
	{PreloadVar, "libraries for the ranks of srun; holdfast run sets it"},
	{WatchVar, "how the ranks of a program reach the holdfast run --watch that started it, which sets it"},
	{HandsVar, "how a node daemon reaches the holdfast run --cuda that started it, which sets it"},
	{SupervisorVar, "how a job reaches the holdfast run that started it, which sets it"},
}

// other is true for those and for the ones of tests.
func other(name string) bool {
	return slices.ContainsFunc(Variables, func(v Variable) bool { return v.Name == name })
}
