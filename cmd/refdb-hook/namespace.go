package main

import (
	"bytes"
	"os"
	"strings"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// inNamespace returns lines OLD NEW REF with the whole names of the refs, which the daemon knows. To pre-receive and update git
// gives the names that the client uses; in a namespace these lack its prefix.
func inNamespace(state string, lines []byte) []byte {
	prefix := namespacePrefix(os.Getenv("GIT_NAMESPACE"))
	if prefix == "" || state != wire.StatePreReceive && state != wire.StateUpdate {
		return lines
	}
	var whole []byte
	for line := range bytes.Lines(lines) {
		parts := bytes.SplitN(line, []byte{' '}, 3)
		if len(parts) == 3 {
			parts[2] = append([]byte(prefix), parts[2]...)
		}
		whole = append(whole, bytes.Join(parts, []byte{' '})...)
	}
	return whole
}

// namespacePrefix returns what stands before the names of a namespace's refs: refs/namespaces/a/refs/namespaces/b/ for a/b.
func namespacePrefix(namespace string) string {
	var prefix strings.Builder
	for part := range strings.SplitSeq(namespace, "/") {
		if part != "" {
			prefix.WriteString("refs/namespaces/" + part + "/")
		}
	}
	return prefix.String()
}
