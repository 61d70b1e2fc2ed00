/** Sessions with the site's daemon. Nothing here knows Gerrit or JGit. */
package com.github.globalrefdb.gerrit.session;
