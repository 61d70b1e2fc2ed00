/** Sessions with the site's daemon. This package does not depend on Gerrit or JGit. */
package com.github.globalrefdb.gerrit.session;
