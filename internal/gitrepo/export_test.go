package gitrepo

// AskingGit returns the repository as if only git knew the format of its refs.
func (r *Repo) AskingGit() *Repo {
	other := *r
	other.format = "of a later git"
	return &other
}

// Reftable reports whether the refs are in tables instead of files.
func (r *Repo) Reftable() bool { return r.format == "reftable" }

var ParseConfig = parseConfig
