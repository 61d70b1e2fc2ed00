package presence

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// An ownerProcess is a daemon that took the site's name with this state directory.
type ownerProcess struct {
	owner string // its name in the database
	// process is the name of its process ([pusher.ThisProcess]); "" if an earlier version wrote it.
	process string
}

// ownerProcesses are the daemons that may have left a lock behind; the file has a line for
// each. Earlier versions wrote and read the owners alone.
type ownerProcesses []ownerProcess

func readOwners(file durable.State) (all ownerProcesses, err error) {
	text, _, err := file.LoadText()
	for line := range strings.Lines(text) {
		owner, process, _ := strings.Cut(strings.TrimSpace(line), " ")
		if owner != "" {
			all = append(all, ownerProcess{owner, process})
		}
	}
	return all, err
}

// write replaces the list, so that it outlasts a crash of the machine.
func (all ownerProcesses) write(file durable.State) error {
	var text strings.Builder
	for _, i := range all {
		fmt.Fprintln(&text, strings.TrimSpace(i.owner+" "+i.process))
	}
	return file.SaveText(text.String())
}

func (all ownerProcesses) find(owner string) (ownerProcess, bool) {
	i := slices.IndexFunc(all, func(i ownerProcess) bool { return i.owner == owner })
	if i < 0 {
		return ownerProcess{}, false
	}
	return all[i], true
}

// with is all and one more.
func (all ownerProcesses) with(one ownerProcess) ownerProcesses {
	others := slices.DeleteFunc(slices.Clone(all), func(i ownerProcess) bool { return i.owner == one.owner })
	return append(others, one)
}
