package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Identity;
import com.google.gerrit.common.Version;
import com.google.gerrit.server.config.GerritServerConfig;
import com.google.gerrit.server.config.SitePaths;
import com.google.inject.Inject;
import com.google.inject.Singleton;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Optional;
import org.eclipse.jgit.lib.Config;

/** What gerrit.config says that concerns the guard: its own section {@code refdb}, and where the repositories are. */
@Singleton
final class Settings {
  /** As in the site's configuration, {@code site.socket}. */
  static final String DEFAULT_SOCKET = "/run/refdb/site.sock";

  private final Path socket;
  private final Path basePath;

  @Inject
  Settings(SitePaths site, @GerritServerConfig Config config) {
    String socket = config.getString("refdb", null, "socket");
    this.socket = Path.of(socket == null ? DEFAULT_SOCKET : socket);
    if (!this.socket.isAbsolute()) {
      throw new IllegalArgumentException("gerrit.config: refdb.socket = " + socket + " is not an absolute path");
    }
    basePath = site.resolve(config.getString("gerrit", null, "basePath"));
  }

  /** The daemon's. */
  Path socket() {
    return socket;
  }

  /** The real path of the directory of repositories; what is configured, if there is no such directory yet. */
  Path root() {
    try {
      return basePath.toRealPath();
    } catch (IOException e) {
      return basePath.toAbsolutePath().normalize();
    }
  }

  Identity offline() {
    return new Identity("Gerrit " + Version.getVersion() + " offline", root(), Optional.empty(), Optional.empty());
  }

  Identity server(Optional<String> instance, String server) {
    return new Identity("Gerrit " + Version.getVersion(), root(), instance, Optional.of(server));
  }
}
