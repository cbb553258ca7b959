package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-hpc/holdfast/bench"
	"github.com/holdfast-hpc/holdfast/internal/mpirun"
)

// find returns the directory of an installation: only the one that the user names, else the one that pkg-config knows,
// else a usual place. The drop-in of Holdfast is none.
func (l library) find() (string, error) {
	if home := os.Getenv(l.env); home != "" {
		there, own := l.in(home)
		switch {
		case !there:
			return "", fmt.Errorf("%s is %s, but there is no include/%s", l.env, home, l.header)
		case own:
			return "", fmt.Errorf("the %s in %s is Holdfast's own drop-in; set %s to another", l.name, home, l.env)
		}
		return home, nil
	}
	name := strings.ToLower(l.name)
	places := []string{"/usr/local", "/usr", "/opt/" + name}
	if prefix, err := exec.Command("pkg-config", "--variable=prefix", name).Output(); err == nil {
		places = append([]string{strings.TrimSpace(string(prefix))}, places...)
	}
	ours := ""
	for _, home := range places {
		there, own := l.in(home)
		if there && !own {
			return home, nil
		}
		if own {
			ours = fmt.Sprintf(" (what is in %s is Holdfast's own drop-in)", home)
		}
	}
	return "", fmt.Errorf("not installed%s; to get it: %s", ours, l.get)
}

// in reports whether a directory has the library's header, and whether that is Holdfast's own.
func (l library) in(home string) (there, own bool) {
	text, err := os.ReadFile(filepath.Join(home, "include", l.header))
	return err == nil, strings.Contains(string(text), "Holdfast")
}

// libraryDirs returns the directories of an installation that may hold its libraries.
func libraryDirs(home string) []string {
	var dirs []string
	for _, d := range []string{"lib", "lib64", "lib/x86_64-linux-gnu"} {
		if info, err := os.Stat(filepath.Join(home, d)); err == nil && info.IsDir() {
			dirs = append(dirs, filepath.Join(home, d))
		}
	}
	return dirs
}

func (l library) libraryPath(home string) string {
	dirs := libraryDirs(home)
	if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
		dirs = append(dirs, old)
	}
	return "LD_LIBRARY_PATH=" + strings.Join(dirs, ":")
}

// build compiles the driver.
func (l library) build(ctx context.Context, launcher mpirun.Launcher, home, dir string) (string, error) {
	args := []string{"-D" + l.define, "-I" + filepath.Join(home, "include")}
	for _, d := range libraryDirs(home) {
		args = append(args, "-L"+d, "-Wl,-rpath-link,"+d) // for the library's own libraries
	}
	return bench.CompileC(ctx, dir, driverSource, []string{launcher.Compiler(), "mpicc"}, append(args, "-l"+l.link)...)
}
