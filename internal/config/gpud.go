package config

// Gpud has the rows of devices and of holdfast gpud, which gives its flags what is in force for them and
// says itself what is wrong with a value. What a job does with them is up to device, and then key, with the key file.
func Gpud[T any](device, key func(o *T, text string) error) []Row[T] {
	free := func(allowed string) Kind[T] { return Checked(allowed, func(*T, string) error { return nil }) }
	return In("devices, and the server that lends them, holdfast gpud",
		Key("device", "the best there is", "device of the program, on this machine or of a holdfast gpud",
			Checked("a selection such as cuda:0, pocl, or remote=node7:7478,cuda:0", device)),
		Key("gpud.key", "~/.config/holdfast/gpud.key", "key of holdfast gpud and its clients",
			Checked("a file", key)),
		Key("gpud.move_key", "gpud-move.key beside it", "key that holdfast migrate, balance and gpud "+
			"--evacuate prove", free("a file")),
		Key("gpud.listen", "a Unix socket of the user", "where holdfast gpud listens",
			free("a list of unix:PATH, HOST:PORT, INTERFACE:PORT")),
		Key("gpud.device", "all", "devices that holdfast gpud offers", free("a list of selections")),
		Key("gpud.quota", "no limit", "device memory of one program of holdfast gpud", free(wantBytes)),
		Key("gpud.max_clients", "256", "programs of holdfast gpud at a time", free(wantCount)),
		Key("gpud.peer", "none", "servers that holdfast gpud moves its programs to when it leaves",
			free("a list of addresses")),
		Key("gpud.grace", "20s", "how long holdfast gpud waits on TERM for programs to end", free(wantDuration)),
		Key("gpud.patience", "30s", "time for a program of holdfast gpud to read what it is sent", free(wantDuration)),
		Key("gpud.silence", "15s", "time for a program's node to acknowledge what holdfast gpud sends",
			free(wantDuration)),
		Key("gpud.frozen", "never", "holdfast gpud drops a program that is stopped for this long", free(wantDuration)),
		Key("gpud.user", "the server's", "user that processes of holdfast gpud for programs run as", free("a user")),
		Key("gpud.worker_dir", "none", "what these processes may use beside devices, libraries and caches",
			free("a list of directories")),
		Key("gpud.metrics", "none", "where holdfast gpud serves metrics over HTTP",
			free("an address, such as 127.0.0.1:9470")))
}
