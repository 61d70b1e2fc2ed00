package com.github.globalrefdb.gerrit;

import com.github.globalrefdb.gerrit.session.Identity;
import com.google.gerrit.common.Version;
import com.google.gerrit.server.config.GerritServerConfig;
import com.google.gerrit.server.config.SitePaths;
import com.google.inject.Inject;
import com.google.inject.Singleton;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.eclipse.jgit.errors.ConfigInvalidException;
import org.eclipse.jgit.lib.Config;
import org.eclipse.jgit.storage.file.FileBasedConfig;
import org.eclipse.jgit.util.FS;

/** The guard's settings in gerrit.config: its own section {@code refdb}, and where the repositories are. */
@Singleton
final class Settings {
  /** The same path as {@code site.socket} in the site's configuration. */
  static final String DEFAULT_SOCKET = "/run/refdb/site.sock";

  private final Path socket;
  private final Path basePath;
  private final Path jgitConfig;

  @Inject
  Settings(SitePaths site, @GerritServerConfig Config config) {
    String socket = config.getString("refdb", null, "socket");
    this.socket = Path.of(socket == null ? DEFAULT_SOCKET : socket);
    if (!this.socket.isAbsolute()) {
      throw new IllegalArgumentException("gerrit.config: refdb.socket = " + socket + " is not an absolute path");
    }
    jgitConfig = site.etc_dir.resolve("jgit.config");
    basePath = site.resolve(config.getString("gerrit", null, "basePath"));
  }

  /** The daemon's. */
  Path socket() {
    return socket;
  }

  /** The real path of the directory of repositories; the configured path if the directory does not exist yet. */
  Path root() {
    try {
      return basePath.toRealPath();
    } catch (IOException e) {
      return basePath.toAbsolutePath().normalize();
    }
  }

  /** The missing ones of the settings {@code core.fsync…Files}: JGit's writes must be on the disk at the report. */
  List<String> missingFsync() throws IOException {
    FileBasedConfig jgit = new FileBasedConfig(jgitConfig.toFile(), FS.DETECTED);
    try {
      jgit.load();
    } catch (ConfigInvalidException e) {
      throw new IOException(e.getMessage(), e);
    }
    return Stream.of("fsyncObjectFiles", "fsyncRefFiles").filter(name -> !jgit.getBoolean("core", name, false)).toList();
  }

  Path jgitConfig() {
    return jgitConfig;
  }

  Identity offline() {
    return new Identity("Gerrit " + Version.getVersion() + " offline", root(), Optional.empty(), Optional.empty());
  }

  Identity server(Optional<String> instance, String server) {
    return new Identity("Gerrit " + Version.getVersion(), root(), instance, Optional.of(server));
  }
}
