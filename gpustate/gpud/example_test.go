package gpud_test

import (
	"context"
	"log"
	"os"

	"github.com/holdfast-hpc/holdfast/gpustate/gpud"
)

// A server of this machine's devices. It starts its own program as the worker of each client.
func Example() {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := gpud.RunWorker(); err != nil {
			log.Fatal(err)
		}
		return
	}
	server, err := gpud.New(gpud.Options{Listen: []string{"eth0:7478"}, KeyFile: "/home/me/.config/holdfast/gpud.key",
		Worker: []string{os.Args[0], "worker"}})
	if err != nil {
		log.Fatal(err)
	}
	log.Print("serving ", server.Addrs())
	if err := server.Serve(context.Background()); err != nil {
		log.Fatal(err)
	}
}
