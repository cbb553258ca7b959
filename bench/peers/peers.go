// Package peers measures other libraries for checkpoints on the user's own
// installations, beside raw writes of the same bytes and beside Holdfast.
package peers

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed driver/driver.c
var driverSource []byte

//go:embed driver/hold.c
var holdSource []byte

// A library is a peer that programs call.
type library struct {
	name   string
	env    string // names the directory of the installation
	header string
	link   string // of -l
	define string
	get    string // how to get it
	// config writes the configuration file of the library, and returns the last argument and the
	// environment of the driver.
	config func(dir string) (arg string, env []string, err error)
}

var libraries = []library{
	{"VeloC", "VELOC_HOME", "veloc.h", "veloc-client", "USE_VELOC",
		"spack install veloc, or https://github.com/ECP-VeloC/VELOC; then set VELOC_HOME", velocConfig},
	{"SCR", "SCR_HOME", "scr.h", "scr", "USE_SCR",
		"spack install scr, or https://github.com/LLNL/scr; then set SCR_HOME", scrConfig},
	{"FTI", "FTI_HOME", "fti.h", "fti", "USE_FTI",
		"https://github.com/leobago/fti, built with cmake; then set FTI_HOME", ftiConfig},
}

// getDMTCP is how to get DMTCP.
const getDMTCP = "spack install dmtcp, or https://github.com/dmtcp/dmtcp; then put its bin into PATH or set DMTCP_HOME"

// directories makes two directories: one for data that stays on the node and one that all nodes
// see.
func directories(dir string) (local, global string, err error) {
	local, global = filepath.Join(dir, "local"), filepath.Join(dir, "global")
	for _, d := range []string{local, global} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", "", err
		}
	}
	return local, global, nil
}

func velocConfig(dir string) (string, []string, error) {
	local, global, err := directories(dir)
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "veloc.cfg")
	text := fmt.Sprintf("scratch = %s\npersistent = %s\nmode = sync\n", local, global)
	return file, nil, os.WriteFile(file, []byte(text), 0o644)
}

func scrConfig(dir string) (string, []string, error) {
	local, global, err := directories(dir)
	// By default SCR 3 bypasses its cache: everything would go to global at once.
	return global, []string{"SCR_PREFIX=" + global, "SCR_CACHE_BASE=" + local, "SCR_CNTL_BASE=" + local,
		"SCR_CACHE_BYPASS=0",
		"SCR_JOB_ID=bench", "SCR_COPY_TYPE=SINGLE", "SCR_FLUSH=1", "SCR_CACHE_SIZE=2", "SCR_DEBUG=0"}, err
}

func ftiConfig(dir string) (string, []string, error) {
	local, global, err := directories(dir)
	if err != nil {
		return "", nil, err
	}
	file := filepath.Join(dir, "fti.ini")
	text := fmt.Sprintf(`[basic]
head = 0
node_size = 1
ckpt_dir = %s
glbl_dir = %s
meta_dir = %s
ckpt_l1 = 0
ckpt_l2 = 0
ckpt_l3 = 0
ckpt_l4 = 0
inline_l2 = 1
inline_l3 = 1
inline_l4 = 1
keep_last_ckpt = 1
keep_l4_ckpt = 0
group_size = 1
max_sync_intv = 0
ckpt_io = 1
verbosity = 3

[restart]
failure = 0
exec_id =

[injection]
rank = 0
number = 0
position = 0
frequency = 0

[advanced]
block_size = 1024
transfer_size = 16
mpi_tag = 2612
general_tag = 2612
ckpt_tag = 711
stage_tag = 406
final_tag = 3107
lustre_striping_unit = 4194304
lustre_striping_factor = -1
lustre_striping_offset = -1
local_test = 1
`, local, global, global)
	return file, nil, os.WriteFile(file, []byte(text), 0o644)
}
