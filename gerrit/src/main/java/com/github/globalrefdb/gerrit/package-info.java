/**
 * The guard in Gerrit: each transaction of its repositories is announced to the site's daemon before a ref moves, and
 * reported after. {@link com.github.globalrefdb.gerrit.DbModule} installs it below all parts of Gerrit that open
 * repositories; {@link com.github.globalrefdb.gerrit.SysModule} checks the start of a server, and tells users why
 * something was refused.
 */
package com.github.globalrefdb.gerrit;
