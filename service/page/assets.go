package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// assets are the script, the style and the icon. Their names have a digest of what is in them, so that a browser
// never has those of another version.
type assets struct {
	hashed  map[string]string // names, by those of the files
	content map[string][]byte
}

var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func newAssets() assets {
	a := assets{map[string]string{}, map[string][]byte{}}
	for _, name := range []string{"page.css", "page.js", "page.svg"} {
		content, err := assetFiles.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the program has it
		}
		sum := sha256.Sum256(content)
		stem, kind, _ := strings.Cut(name, ".")
		hashed := stem + "-" + hex.EncodeToString(sum[:8]) + "." + kind
		a.hashed[name], a.content[hashed] = hashed, content
	}
	return a
}

// ServeHTTP implements [http.Handler].
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, ok := a.content[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", assetTypes[path.Ext(r.PathValue("name"))])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // they hold nothing of the database
	_, _ = w.Write(content)
}
