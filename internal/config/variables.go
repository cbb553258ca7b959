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
	{OpenCLLogVar, "1: the command that serves an OpenCL program logs each call that fails, with the reason"},
	{OpenCLVendorsVar, "OCL_ICD_VENDORS of that command"},
	{"HOLDFAST_CUDA_DRIVER", "libcuda.so.1 of CUDA's driver, for libholdfast-cuda; by default the one in " +
		"LD_LIBRARY_PATH or in the directories of distributions"},
	{CUDAPauseVar, "on: holdfast pause can have the program give up its GPU; holdfast run --cuda sets it"},
	{"HOLDFAST_CUDA_ARENA", "on or off: libholdfast-cuda maps the program's device memory itself, at fixed " +
		"addresses; by default as HOLDFAST_CUDA_PAUSE"},
	{"HOLDFAST_CUDA_CHECK", "how often libholdfast-cuda rolls a program's device memory back in place, to test it"},
	{"HOLDFAST_CUDA_SEED", "draws the moments of those roll backs; by default 1"},
	{"HOLDFAST_CUDA_CALLS", "the launches and copies that they are among, from the first; by default 1000"},
	{"HOLDFAST_CUDA_WAIT", "seconds that one waits for the device and other threads; by default 60"},
	{"HOLDFAST_CUDA_LIST", "file for the device memory that libholdfast-cuda knows of when the program ends"},
	{PreloadVar, "libraries for the ranks of srun; holdfast run sets it"},
	{WatchVar, "how the ranks of a program reach the holdfast run --watch that started it, which sets it"},
	{HandsVar, "how a node daemon reaches the holdfast run --cuda that started it, which sets it"},
	{SupervisorVar, "how a job reaches the holdfast run that started it, which sets it"},
}

// other is true for those and for the ones of tests.
func other(name string) bool {
	return slices.ContainsFunc(Variables, func(v Variable) bool { return v.Name == name })
}
