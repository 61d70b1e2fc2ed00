package presence

import (
	"fmt"
	"os"
	"syscall"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// A location is where a state directory was when it was last written. It tells the directory
// from its copies.
type location struct {
	Machine   string `json:"machine,omitempty"` // the operating system's ID of the machine
	Product   string `json:"product,omitempty"` // the firmware's; "" for users who can't read that
	Directory uint64 `json:"directory"`         // inode
}

// currentLocation returns where the state directory is now.
func currentLocation(c *config.Config) (location, error) {
	info, err := os.Stat(c.State)
	if err != nil {
		return location{}, fmt.Errorf("inspecting site.state: %w", err)
	}
	p := location{Machine: config.MachineID(), Product: c.Product}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		p.Directory = uint64(s.Ino)
	}
	return p, nil
}

// movedFrom returns in what p differs from where the state was; "" if it is the same. What
// was unknown then is not compared, nor a product's ID that can't be read now.
func (p location) movedFrom(was location) string {
	switch {
	case was.Machine != "" && p.Machine != was.Machine:
		return "another " + config.MachineFile
	case was.Product != "" && p.Product != "" && p.Product != was.Product:
		return "another " + config.ProductFile
	case was.Directory != 0 && p.Directory != was.Directory:
		return "another directory"
	}
	return ""
}

// with returns p, with the product's ID of was if it can't be read now.
func (p location) with(was location) location {
	if p.Product == "" {
		p.Product = was.Product
	}
	return p
}
