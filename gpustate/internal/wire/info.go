package wire

import (
	"github.com/holdfast-hpc/holdfast/gpustate/internal/driver"
	"github.com/holdfast-hpc/holdfast/internal/codec"
)

// info passes what describes a device.
func info(f *Fields, i *driver.Info) {
	driver.PassNames(f, i)
	f.Str(&i.IL)
	codec.Size(f, &i.Index)
	codec.Size(f, &i.GlobalBytes, &i.MaxAllocBytes, &i.LocalBytes)
	codec.Size(f, &i.SubAlign, &i.MaxGroup)
	var serial bool // a server of before took no care of turns itself
	f.Bool(&i.FP64, &i.Images, &i.Shared, &i.OutOfOrder, &i.HostMemory, &i.Lazy, &serial)
	codec.Size(f, &i.MaxImage1D, &i.MaxImage2D[0], &i.MaxImage2D[1],
		&i.MaxImage3D[0], &i.MaxImage3D[1], &i.MaxImage3D[2], &i.MaxLayers)
}
