# shellcheck shell=bash disable=SC2034
# Arguments for Megatron-LM 0.19. Source this file and pass "${MEGATRON_ARGS[@]}".
MEGATRON_ARGS=(
  # model
  --num-layers 61
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --kv-channels 192
  --multi-latent-attention
  --q-lora-rank 1536
  --kv-lora-rank 512
  --qk-head-dim 128
  --qk-pos-emb-head-dim 64
  --v-head-dim 128
  --qk-layernorm
  --disable-bias-linear
  --swiglu
  --normalization RMSNorm
  --norm-epsilon 1e-06
  --init-method-std 0.006
  --untie-embeddings-and-output-weights
  --position-embedding-type rope
  --rotary-base 10000
  --rope-type yarn
  --rotary-scaling-factor 40.0
  --mscale 1.0
  --mscale-all-dim 1.0
  --max-position-embeddings 163840
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --vocab-size 129280
  --make-vocab-size-divisible-by 128
  --mtp-num-layers 1
  --mtp-loss-scaling-factor 0.1
  # experts
  --num-experts 256
  --moe-layer-freq '([0]*3+[1]*58)'
  --moe-ffn-hidden-size 2048
  --moe-shared-expert-intermediate-size 2048
  --moe-router-topk 8
  --moe-router-score-function sigmoid
  --moe-router-num-groups 8
  --moe-router-group-topk 4
  --moe-router-topk-scaling-factor 2.5
  --moe-router-enable-expert-bias
  --moe-router-load-balancing-type seq_aux_loss
  --moe-aux-loss-coeff 0.0001
  --moe-router-dtype fp32
  --moe-router-fusion
  --moe-router-force-load-balancing
  --moe-grouped-gemm
  --moe-permute-fusion
  --moe-token-dispatcher-type flex
  --moe-flex-dispatcher-backend deepep
  # parallelism
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 16
  --context-parallel-size 1
  --expert-model-parallel-size 64
  --expert-tensor-parallel-size 1
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --distributed-timeout-minutes 30
  # pipeline
  --pipeline-model-parallel-layout 'Et*3|(tt|)*29,m|L'
  # batch
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 16384
  --train-iters 1000
  --eval-iters 0
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --lr-warmup-fraction 0.01
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --clip-grad 1.0
  # precision
  --bf16
  --transformer-impl transformer_engine
  --attention-backend auto
  # recompute
  --recompute-granularity selective
  --recompute-modules layernorm mla_up_proj mlp moe
  # data
  --mock-data
  --tokenizer-type NullTokenizer
  --no-create-attention-mask-in-dataloader
  # checkpoint
  --ckpt-format torch_dist
  # log
  --log-interval 1
  --log-throughput
  --manual-gc
  --manual-gc-interval 100
)
