package smarthttp

import (
	"net/http"
	"strings"
)

// A service is one of the requests of git's smart HTTP protocol.
type service int

const (
	advertiseRefs service = iota // what there is to fetch, or in protocol version 2 what can be asked
	advertisePush                // what there is to push to
	uploadPack                   // a fetch or, in version 2, a list of refs
	receivePack                  // a push
)

// path is what follows the repository in the URL.
func (s service) path() string {
	switch s {
	case uploadPack:
		return "git-upload-pack"
	case receivePack:
		return "git-receive-pack"
	}
	return "info/refs"
}

// reads reports whether the service reads what was pushed elsewhere.
func (s service) reads() bool { return s == advertiseRefs || s == uploadPack }

// route returns the project that a request is about, and what it asks. Status is 0, or that with which the request is refused: all
// but the smart protocol is.
func route(r *http.Request) (project string, s service, status int) {
	method := http.MethodPost
	path := strings.TrimPrefix(r.URL.Path, "/")
	if rest, ok := strings.CutSuffix(path, "/info/refs"); ok {
		project, method = rest, http.MethodGet
		switch r.URL.RawQuery {
		case "service=git-upload-pack":
			s = advertiseRefs
		case "service=git-receive-pack":
			s = advertisePush
		default:
			return "", 0, http.StatusForbidden
		}
	} else if rest, ok := strings.CutSuffix(path, "/git-upload-pack"); ok {
		project, s = rest, uploadPack
	} else if rest, ok := strings.CutSuffix(path, "/git-receive-pack"); ok {
		project, s = rest, receivePack
	} else {
		return "", 0, http.StatusNotFound
	}
	if r.Method != method {
		return "", 0, http.StatusMethodNotAllowed
	}
	return strings.TrimSuffix(project, ".git"), s, 0
}
