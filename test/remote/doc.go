// Package remote tests applications on devices of `holdfast gpud`: moved while
// they run, and with servers that leave or are killed.
package remote
