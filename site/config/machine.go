package config

import (
	"os"
	"path/filepath"
	"strings"
)

const (
	MachineFile = "/etc/machine-id"
	ProductFile = "/sys/class/dmi/id/product_uuid"
)

// MachineID returns the operating system's ID of the machine; "" if it can't be read.
func MachineID() string { return firstLine(MachineFile) }

// product returns the firmware's ID of the machine. Only root can read the file; systemd
// hands the ID to a service as a credential, or "-" if the machine has none.
func product() string {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		if id := firstLine(filepath.Join(dir, "product_uuid")); id != "" && id != "-" {
			return id
		}
	}
	return firstLine(ProductFile)
}

// firstLine returns "" for a file that can't be read.
func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
