package pusher

import (
	"bytes"
	"os"
	"strconv"
)

// Pushes reports whether the agent runs git push, or what git push runs to send, rather than a command that receives a push.
// Such a process moves refs of its own repository, to what it believes the other repository to have: what it read when it began.
func (a Agent) Pushes() (bool, error) {
	arguments, err := os.ReadFile("/proc/" + strconv.Itoa(a.PID) + "/cmdline")
	if err != nil {
		return false, goneUnless(err)
	}
	var words []string
	for word := range bytes.SplitSeq(bytes.TrimSuffix(arguments, []byte{0}), []byte{0}) {
		words = append(words, string(word))
	}
	command := commandOf(words)
	return command == "push" || command == "send-pack", nil
}
