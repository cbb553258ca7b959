package opencl

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestNumbers: the library in C has the same operations and the same version.
func TestNumbers(t *testing.T) {
	text, err := os.ReadFile("../../lib/opencl/src/protocol.h")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint32{"HELLO": opHello, "DEVICES": opDevices, "DEVICE_INFO": opDeviceInfo,
		"CREATE_QUEUE": opCreateQueue, "CREATE_BUFFER": opCreateBuffer, "CREATE_SUB": opCreateSub,
		"CREATE_IMAGE": opCreateImage, "CREATE_SAMPLER": opCreateSample, "RELEASE": opRelease, "BUILD": opBuild,
		"CREATE_KERNEL": opCreateKernel, "SET_ARG": opSetArg, "WORK_GROUP": opWorkGroup, "ARG_INFO": opArgInfo,
		"FORMATS": opFormats, "LAUNCH": opLaunch, "READ": opRead, "WRITE": opWrite, "COPY": opCopy, "FILL": opFill,
		"MARKER": opMarker, "FLUSH": opFlush, "FINISH": opFinish, "USER_EVENT": opUserEvent,
		"SET_USER_EVENT": opSetUserEvent, "EVENT_STATUS": opEventStatus, "EVENT_TIMES": opEventTimes, "WAIT": opWait,
		"WATCH": opWatch, "FORGET": opForget, "SHARE": opShare, "UNSHARE": opUnshare, "SETTLE": opSettle,
		"CONTEXT": opContext, "CAPTURE": opCapture, "STATE": opState, "RESTORE": opRestore,
		"CLONE_KERNEL": opCloneKernel, "TAKES_UNKNOWN": takesUnknown, "TAKES_BUFFER": takesBuffer,
		"TAKES_SAMPLER": takesSampler, "TAKES_IMAGE": takesImage, "TAKES_IMAGE_READ": takesImageRead,
		"TAKES_IMAGE_WRITE": takesImageWrite,
		"NOTE":              opNote, "DELIVERY": opDelivery, "LOST": opLost}
	found := regexp.MustCompile(`(?m)^\tHFCL_([A-Z_]+) = (\d+)`).FindAllSubmatch(text, -1)
	if len(found) != len(want) {
		t.Errorf("got %d operations and kinds in C, want %d", len(found), len(want))
	}
	for _, m := range found {
		n, _ := strconv.Atoi(string(m[2]))
		if w, ok := want[string(m[1])]; !ok || w != uint32(n) {
			t.Errorf("%s is %d in C, %d in Go (known: %v)", m[1], n, w, ok)
		}
	}
	for name, n := range map[string]int{"HFCL_VERSION": Version, "HFCL_HEADER": headerBytes,
		"HFCL_RING_WRITTEN": ringWritten, "HFCL_RING_ASLEEP": ringAsleep,
		"HFCL_RING_READ": ringRead, "HFCL_RING_CAREFUL": ringCareful, "HFCL_RING_REPLIES": ringReplies,
		"HFCL_RING_SLOTS": ringSlots, "HFCL_RING_SLOT": ringSlot, "HFCL_RING_DATA": ringData,
		"HFCL_RING_WORDS": ringWords, "HFCL_SLOTS": slotCount, "HFCL_SLOT_BYTES": slotBytes,
		"HFCL_RING_BYTES": ringBytes, "HFCL_RING_MESSAGE": ringMessage} {
		m := regexp.MustCompile(`#define ` + name + ` (\d+)`).FindSubmatch(text)
		if m == nil || string(m[1]) != strconv.Itoa(n) {
			t.Errorf("%s: got %q in C, want %d", name, m, n)
		}
	}
}
