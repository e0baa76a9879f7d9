import hydra
import mlflow
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    model = hydra.utils.instantiate(config.model)
    X, y = load_wine(return_X_y=True)
    accuracy = cross_val_score(model, X, y, cv=config.folds).mean()
    print(f"accuracy {accuracy:.4f} in {HydraConfig.get().runtime.output_dir}", flush=True)
    with mlflow.start_run():
        mlflow.log_params(OmegaConf.to_container(config.model))
        mlflow.log_metric("hydra_accuracy", accuracy)


if __name__ == "__main__":
    main()
