package pusher

import (
	"os"
	"strconv"
	"strings"
)

// Pushes reports whether the agent runs git push, or what git push runs to send, rather than a command that receives a push.
// Such a process moves refs of its own repository, to what it believes the other repository to have: what it read when it began.
func (a Agent) Pushes() (bool, error) {
	words, err := a.words()
	command, _ := commandOf(words)
	return command == "push" || command == "send-pack", err
}

// RenamesTo returns the ref that git branch gives another's value before it ends, without a hook, if the agent runs it to rename a
// branch; otherwise "". The hook sees the deletion of the old name alone.
func (a Agent) RenamesTo() (ref string, err error) {
	words, err := a.words()
	return renamedTo(words), err
}

// words returns the name and the arguments with which the agent was started.
func (a Agent) words() ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(a.PID) + "/cmdline")
	if err != nil {
		return nil, goneUnless(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}
