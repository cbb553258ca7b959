package level

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/holdfast-hpc/holdfast/storage/internal/format"
)

// TempName is a name for a file in the making. It starts with the final name
// and names the rank that writes it, so that the rank's next start can clear
// away what a crash left behind, and only that.
func TempName(final string, rank int) string {
	var b [6]byte
	rand.Read(b[:])
	return fmt.Sprintf("%s.r%06d.%s%s", final, rank, hex.EncodeToString(b[:]), format.TempSuffix)
}

// isTempOf says whether name is a temporary file of rank.
func isTempOf(name string, rank int) bool {
	return strings.HasSuffix(name, format.TempSuffix) && strings.Contains(name, fmt.Sprintf(".r%06d.", rank))
}
