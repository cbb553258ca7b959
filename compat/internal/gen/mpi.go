package gen

// elements are the types of empi's methods.
var elements = []struct{ Name, Type string }{
	{"F64", "float64"}, {"F32", "float32"}, {"Int", "int"}, {"I64", "int64"}, {"U64", "uint64"},
	{"I32", "int32"}, {"U32", "uint32"}, {"I16", "int16"}, {"U16", "uint16"}, {"I8", "int8"},
	{"U8", "uint8"}, {"C128", "complex128"}, {"C64", "complex64"},
}

const numericText = `

package mpi
{{range .}}
// Send{{.Name}} sends vals to rank to with a tag. It blocks as long as MPI needs vals. Local to the two ranks.
func (cm *Comm) Send{{.Name}}(to int, tag int, vals []{{.Type}}) error { return send(cm, to, tag, vals) }

// Recv{{.Name}} receives from rank from with a tag into the beginning of vals. Local to the two ranks.
func (cm *Comm) Recv{{.Name}}(from int, tag int, vals []{{.Type}}) error { return recv(cm, from, tag, vals) }

// Bcast{{.Name}} copies vals of rank from to every rank. Collective.
func (cm *Comm) Bcast{{.Name}}(from int, vals []{{.Type}}) error { return bcast(cm, from, vals) }

// Reduce{{.Name}} combines orig of all ranks into dest of rank to; others need no dest. Collective.
func (cm *Comm) Reduce{{.Name}}(to int, op Op, dest, orig []{{.Type}}) error { return reduce(cm, to, op, dest, orig) }

// AllReduce{{.Name}} combines orig of all ranks into dest of every rank. Collective.
func (cm *Comm) AllReduce{{.Name}}(op Op, dest, orig []{{.Type}}) error { return allReduce(cm, op, dest, orig) }

// Gather{{.Name}} collects orig of all ranks in dest of rank to, Size times as long as orig. Collective.
func (cm *Comm) Gather{{.Name}}(to int, dest, orig []{{.Type}}) error { return gather(cm, to, dest, orig) }

// AllGather{{.Name}} collects orig of all ranks in dest of every rank, Size times as long as orig. Collective.
func (cm *Comm) AllGather{{.Name}}(dest, orig []{{.Type}}) error { return allGather(cm, dest, orig) }

// Scatter{{.Name}} deals orig of rank from, Size times as long as dest, to dest of every rank. Collective.
func (cm *Comm) Scatter{{.Name}}(from int, dest, orig []{{.Type}}) error { return scatter(cm, from, dest, orig) }
{{end}}`
