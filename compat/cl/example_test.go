package cl_test

import (
	"fmt"
	"log"

	"github.com/holdfast-hpc/holdfast/compat/cl"
)

// A program for go-opencl: only its import line has changed. State is for a checkpointer.
func Example() {
	platforms, err := cl.GetPlatforms()
	if err != nil {
		log.Fatal(err)
	}
	devices, err := platforms[0].GetDevices(cl.DeviceTypeAll)
	if err != nil {
		log.Fatal(err)
	}
	context, err := cl.CreateContext(devices[:1])
	if err != nil {
		log.Fatal(err)
	}
	defer context.Release()
	fmt.Println(devices[0].Name(), context.State())
}
