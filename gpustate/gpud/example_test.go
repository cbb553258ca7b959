package gpud_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

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

// The policy moves a program from a full device to an idle one when the difference has lasted for two decisions.
func ExampleWindow_Decide() {
	loads := []gpud.Load{
		{Server: "n1:7478", Takes: true, Device: gpud.DeviceStatus{TotalBytes: 8 << 30, Unfinished: 45},
			Clients: []gpud.ClientStatus{{ID: 7, Unfinished: 20}, {ID: 8, Unfinished: 25}}},
		{Server: "n2:7478", Takes: true, Device: gpud.DeviceStatus{TotalBytes: 8 << 30}},
	}
	policy := &gpud.Window{}
	now := time.Now()
	fmt.Println(len(policy.Decide(now, loads)))
	for _, o := range policy.Decide(now.Add(time.Second), loads) {
		fmt.Printf("client %d of %s to device %d of %s\n", o.Client, o.From, o.Device, o.To)
	}
	// Output:
	// 0
	// client 7 of n1:7478 to device 0 of n2:7478
}
