package wire

import "github.com/holdfast-hpc/holdfast/gpustate/internal/driver"

func encodeInfo(w *Writer, i *driver.Info) {
	w.Names(i)
	w.Str(i.IL)
	for _, n := range []int64{int64(i.Index), i.GlobalBytes, i.MaxAllocBytes, i.LocalBytes, int64(i.SubAlign),
		int64(i.MaxGroup)} {
		w.Int(n)
	}
	for _, b := range []bool{i.FP64, i.Images, i.Shared, i.OutOfOrder, i.HostMemory, i.Lazy, false} {
		w.Bool(b)
	}
	for _, n := range infoExtents(i) {
		w.Int(int64(*n))
	}
}

func decodeInfo(r *Reader, i *driver.Info) {
	r.Names(i)
	i.IL = r.Str()
	i.Index = int(r.Size())
	for _, n := range []*int64{&i.GlobalBytes, &i.MaxAllocBytes, &i.LocalBytes} {
		*n = r.Size()
	}
	i.SubAlign, i.MaxGroup = int(r.Size()), int(r.Size())
	var serial bool // a server of before took no care of turns itself
	for _, b := range []*bool{&i.FP64, &i.Images, &i.Shared, &i.OutOfOrder, &i.HostMemory, &i.Lazy, &serial} {
		*b = r.Bool()
	}
	for _, n := range infoExtents(i) {
		*n = int(r.Size())
	}
}

func infoExtents(i *driver.Info) []*int {
	return []*int{&i.MaxImage1D, &i.MaxImage2D[0], &i.MaxImage2D[1],
		&i.MaxImage3D[0], &i.MaxImage3D[1], &i.MaxImage3D[2]}
}
