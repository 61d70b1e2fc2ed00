package output

import (
	"bytes"
	"encoding/json"
	"io"
)

// Document prints v as JSON that is safe to show on a terminal. It is for data with JSON names of its
// own.
func Document(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	var safe []byte
	for line := range bytes.Lines(text.Bytes()) {
		safe = append(append(safe, escapeJSON(string(bytes.TrimSuffix(line, []byte("\n"))))...), '\n')
	}
	_, err := w.Write(safe)
	return err
}
